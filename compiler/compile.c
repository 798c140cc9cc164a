/* compile: the pipeline; see compile.h. */
#include "compile.h"

#include "algebra/relative.h"
#include "base/diag.h"
#include "base/limit.h"
#include "base/number.h"
#include "cpu/forms.h"
#include "forms/form.h"
#include "gpu/forms.h"
#include "gpu/target.h"
#include "object/describe.h"
#include "object/object.h"
#include "plan/widen.h"
#include "tile/tile.h"

#include "spec/adjoint.h"
#include "spec/size.h"

#include <stdio.h>
#include <stdlib.h>

static void write_expr(const form *f, const void *plan, compile_output *out) {
  FILE *stream = arena_must(open_memstream(&out->data, &out->size));
  f->print(stream, plan);
  if (fclose(stream)) arena_must(NULL);
}

static void write_programs(arena *a, const form *f, const void *plan, compile_output *out) {
  const program *programs[FORM_MAX_PROGRAMS];
  int count = form_programs(a, f, plan, programs);
  FILE *stream = arena_must(open_memstream(&out->data, &out->size));
  for (int i = 0; i < count; i++) {
    if (i) fputc('\n', stream);
    program_print(stream, programs[i]);
  }
  if (fclose(stream)) arena_must(NULL);
}

/* Programs that turn rows before those of attention and behind them. */
static void print_turns(FILE *out, arena *a, bool values, bool gradients) {
  static const struct {
    tile_tensor tensor;
    bool back, of_values, of_gradients;
  } turns[] = {{TILE_Q, false, false, false}, {TILE_K, false, false, false}, {TILE_V, false, true, false},
               {TILE_OUT, true, true, false}, {TILE_OUT, false, true, true}, {TILE_G_OUT, false, true, true},
               {TILE_G_Q, true, false, true}, {TILE_G_K, true, false, true}, {TILE_G_V, true, true, true}};
  for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
    if ((turns[i].of_values && !values) || (turns[i].of_gradients && !gradients)) continue;
    tile_print(out, tile_pipeline(a, tile_turn(a, turns[i].tensor, turns[i].back)));
    fputc('\n', out);
  }
}

/* Attention's programs over tiles, as tensor cores are given them: gradients of keys and of values by one program, or
 * where their sums have no room together by the last two. */
static bool write_tiles(arena *a, const spec *s, const compile_options *options, compile_output *out) {
  if (!s->pairwise) {
    diag_error(s->file, s->line, "'%s' has no attention; --emit tile is for descriptions with role = \"pairwise\"",
               s->name);
    return false;
  }
  const plan_widen *polynomial = s->polynomial ? plan_widen_build(a, s) : NULL;
  if (s->polynomial && !polynomial) return false;
  bool columns = polynomial && polynomial->n_columns > 0;
  const tile_program *forward = tile_forward(a, columns);
  if (s->pairwise->sink) forward = tile_sunk(a, forward);
  bool is_turned = false;
  if (s->pairwise->rotates) {
    is_turned = !s->skip_tokens && !rotations_stay_on_pairs(a, s);
    forward = is_turned ? tile_turned(a, forward, s->pairwise->turns_values) : tile_rotated(a, forward);
  }
  FILE *stream = arena_must(open_memstream(&out->data, &out->size));
  if (is_turned) print_turns(stream, a, s->pairwise->turns_values, !options->no_gradients);
  tile_print(stream, tile_pipeline(a, tile_apart(a, forward)));
  if (!columns && (is_turned || !s->pairwise->rotates)) {
    fputc('\n', stream);
    tile_print(stream, tile_pipeline(a, tile_apart(a, tile_few(a, forward))));
  }
  static const unsigned gained[] = {TILE_OF_QUERIES,
                                    TILE_OF_KEYS | TILE_OF_VALUES,
                                    TILE_OF_KEYS,
                                    TILE_OF_VALUES,
                                    TILE_OF_QUERIES | TILE_OF_OPERANDS | TILE_OF_TOKENS,
                                    TILE_OF_KEYS | TILE_OF_VALUES | TILE_OF_TOKENS};
  /* Other entries serve what gains of polynomials and rotations beside rows. */
  bool by_pairs =
      (s->pairwise->bias || s->pairwise->score || s->pairwise->sink) && !polynomial && !s->pairwise->rotates;
  for (int i = 0; i < (by_pairs ? 6 : 4) && !options->no_gradients; i++) {
    fputc('\n', stream);
    tile_print(stream, tile_pipeline(a, tile_apart(a, tile_reverse(a, forward, gained[i]))));
  }
  if (fclose(stream)) arena_must(NULL);
  return true;
}

/* The GPU to write for, NULL where none is named, and the processors. */
typedef struct chosen {
  const gpu_target *gpu;
  const char *cpus;
  bool gpu_alone;
} chosen;

/* What is written for a GPU alone: assembly, or what comes before it. */
static bool check_gpu_alone(const compile_options *options, const gpu_target *gpu) {
  bool is_shared = options->emit == EMIT_SHARED;
  if (!is_shared && (options->emit != EMIT_OBJ || gpu->vendor->has_objects)) return true;
  diag_error(NULL, 0,
             "%s object needs a processor; expected --target %s,x86-64-v3 or the like, or an output that ends in .ptx",
             is_shared ? "a shared" : "an", gpu->name);
  return false;
}

static bool check_gpu_embedded(const gpu_target *gpu) {
  if (gpu->vendor->is_embedded) return true;
  diag_error(NULL, 0, "code for %s does not go into objects for processors; expected --target %s alone",
             gpu->vendor->name, gpu->name);
  return false;
}

static bool is_object(emit_kind emit) { return emit == EMIT_OBJ || emit == EMIT_SHARED; }

static bool choose_gpu(arena *a, const compile_options *options, chosen *c) {
  bool is_ptx = options->emit == EMIT_PTX;
  c->gpu = gpu_target_parse(a, options->targets, &c->cpus);
  if (is_ptx && options->targets && (!c->gpu || c->gpu->vendor->assembly != EMIT_PTX)) {
    diag_error(NULL, 0, "PTX is for NVIDIA's GPUs; expected --target sm_90 or the like, not '%s'", options->targets);
    return false;
  }
  c->gpu_alone = is_ptx || (c->gpu && !c->cpus);
  if (c->gpu_alone && !c->gpu) c->gpu = gpu_target_default();
  if (options->cubin && (!c->gpu || c->gpu_alone || !is_object(options->emit))) {
    diag_error(NULL, 0,
               "--cubin is for objects with PTX; expected --target x86-64-v3,sm_90 or the like, and an object");
    return false;
  }
  if (!c->gpu) return true;
  return gpu_target_check(a, options->targets, c->gpu) &&
         (c->gpu_alone ? check_gpu_alone(options, c->gpu) : check_gpu_embedded(c->gpu));
}

/* Whether rows can be written in other number types than they are read in, as asked for; else after a diag_error. */
static bool check_pairs(const spec *s, const form *f, const gpu_target *gpu, unsigned dtypes) {
  if (!(dtypes & number_all_pairs())) return true;
  if (!f->converts) {
    diag_error(s->file, s->line,
               "outputs of kernels of this kind have the number type of q and k; expected --dtype without ':'");
    return false;
  }
  for (int in = 0; in < NUMBER_CHANNEL_TYPES; in++)
    for (int out = NUMBER_CHANNEL_TYPES; out < NUMBER_OUT_TYPES; out++)
      if (gpu && dtypes & number_pair(in, out) && !(gpu->native & NUMBER_BIT(out))) {
        diag_error(NULL, 0, "%s does not convert to %s; expected --target sm_89 or later", gpu->name, number_name(out));
        return false;
      }
  return true;
}

entry_option compile_entries(const compile_options *options) {
  return options->tangents ? ENTRY_TANGENT : options->no_gradients ? ENTRY_ALWAYS : ENTRY_GRADIENT;
}

/* Whether tangents can be had, where they are asked for; else after a diag_error. */
static bool check_tangents(const spec *s, const form *f, const compile_options *options, bool gpu_alone) {
  if (!options->tangents) return true;
  if (!form_entry(f, PEGEN_ENTRY_attention_tangent, ENTRY_TANGENT)) {
    diag_error(s->file, s->line,
               "--tangents is for attention; '%s' is linear in q and k, so that the tangent of what encode writes is "
               "encode of the tangents",
               s->name);
    return false;
  }
  if (options->no_gradients) diag_error(NULL, 0, "--tangents needs what gradients need; expected no --no-grad");
  else if (gpu_alone) diag_error(NULL, 0, "--tangents is for processors; expected --target x86-64-v3 or the like");
  return !options->no_gradients && !gpu_alone;
}

static bool compile_within_limits(arena *a, const spec *s, const compile_options *options, compile_output *out) {
  unsigned dtypes = options->dtypes ? options->dtypes : number_all_dtypes();
  const cpu_target *targets[TARGET_MAX];
  chosen on;
  if (!choose_gpu(a, options, &on)) return false;
  int n_targets = on.gpu_alone ? 0 : target_parse(a, on.cpus, targets);
  if (!(on.gpu_alone || n_targets) || !spec_validate(s) || !spec_check_size(a, s)) return false;

  const form *f = form_of(s);
  if (f && (!check_pairs(s, f, on.gpu, dtypes) || !check_tangents(s, f, options, on.gpu_alone))) return false;
  const void *plan = f ? f->plan(a, s) : NULL;
  if (plan && !options->no_gradients && !adjoint_check_size(a, s)) return false;
  const gpu_program *program =
      plan && on.gpu ? gpu_program_of(a, on.gpu, f, plan, dtypes, !options->no_gradients) : NULL;
  if (!plan || (on.gpu && !program)) return false;
  if (options->emit == EMIT_EXPR) {
    write_expr(f, plan, out);
    return true;
  }
  if (options->emit == EMIT_PROGRAM) {
    write_programs(a, f, plan, out);
    return true;
  }
  if (options->emit == EMIT_TILE) return write_tiles(a, s, options, out);
  if (on.gpu_alone) {
    gpu_write(a, program, on.gpu, options, out);
    out->gpu = program;
    return true;
  }
  const gpu_module *ptx = on.gpu ? gpu_compile(a, program, on.gpu, options) : NULL;
  if (on.gpu && !ptx) return false;
  ir b;
  ir_create(&b, s->file, s->line);
  emit_form_imports(&b, f);
  int n_emitted = options->launches_alone ? 0 : n_targets;
  for (int i = 0; i < n_emitted; i++) emit_form(&(form_emission){&b, a, f, plan, targets[i], dtypes});
  for (int i = 0; i < n_emitted && !options->no_gradients; i++)
    emit_form_gradients(&(form_emission){&b, a, f, plan, targets[i], dtypes});
  for (int i = 0; i < n_emitted && options->tangents; i++)
    emit_form_tangents(&(form_emission){&b, a, f, plan, targets[i], dtypes});
  describe_request request = {.memory = a,
                              .form = f,
                              .spec = s,
                              .plan = plan,
                              .dtypes = dtypes,
                              .entries = compile_entries(options),
                              .tvm_ffi = options->tvm_ffi,
                              .digest = describe_digest(a, f, s, plan),
                              .ptx = ptx};
  bool ok = object_write(&b, targets, n_targets, options, &request, out);
  ir_destroy(&b);
  return ok;
}

bool compile(arena *a, const spec *s, const compile_options *options, compile_output *out) {
  *out = (compile_output){0};
  limit_begin(s->file, s->line);
  bool ok = compile_within_limits(a, s, options, out);
  limit_end();
  return ok;
}

int target_list(const target_info **list) {
  enum { MOST_PROCESSORS = 16, MOST_GPUS = 32 };
  static target_info infos[MOST_PROCESSORS + 1 + MOST_GPUS];
  int count = 0;
  const cpu_target *cpu;
  const gpu_target *gpu;
  for (int i = 0; i < MOST_PROCESSORS && (cpu = target_at(i)); i++)
    infos[count++] = (target_info){cpu->name, cpu->description};
  infos[count++] = (target_info){"native", "this machine's processor with all its features; runs on its like only"};
  for (int i = 0; i < MOST_GPUS && (gpu = gpu_target_at(i)); i++)
    infos[count++] = (target_info){gpu->name, gpu->description};
  *list = infos;
  return count;
}
