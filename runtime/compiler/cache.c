/* cache.c: see cache.h. Every failure means: compile. */
#include "cache.h"

#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* The end of an entry. */
typedef struct footer {
  uint64_t object, header, made_of; /* sizes; the three stand one after the other */
  uint64_t check[2];                /* of everything before, with the sizes */
  char magic[8];
} footer;
static const char magic[8] = {'p', 'e', 'g', 'e', 'n', 's', 'o', '1'};

/* ---- the folder ---------------------------------------------------------------------- */

static bool make_folders(char *path) {
  for (char *c = path + 1;; c++) {
    if (*c && *c != '/') continue;
    char end = *c;
    *c = 0;
    bool ok = !mkdir(path, 0700) || errno == EEXIST || errno == EROFS || errno == EACCES;
    *c = end;
    if (!ok) return false;
    if (!end) return true;
  }
}

/* What is read from it runs with our rights. */
static bool is_own(const struct stat *file) {
  return (file->st_uid == geteuid()) && !(file->st_mode & (S_IWGRP | S_IWOTH));
}

/* Whether nobody else can put another entry in the place of one of ours in that folder. */
static bool keeps_entries(const char *path) {
  struct stat is;
  return !lstat(path, &is) && S_ISDIR(is.st_mode) && (is.st_uid == 0 || is.st_uid == geteuid()) &&
         (is.st_mode & S_ISVTX || !(is.st_mode & (S_IWGRP | S_IWOTH)));
}

/* All folders above it, from the root: below one that keeps its entries the next cannot change meanwhile. */
static bool is_kept(char *path) {
  bool kept = keeps_entries("/");
  for (char *slash = path + 1; kept && (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    kept = keeps_entries(path);
    *slash = '/';
  }
  return kept;
}

void pegen_cache_open(cache *c, const char *folder, const bytes *key) {
  const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char whole[PATH_MAX]; /* without links */
  int length = -1;
  struct stat is;
  c->key = key;
  if (folder) length = snprintf(c->folder, sizeof c->folder, "%s", folder);
  else if (base && *base == '/') length = snprintf(c->folder, sizeof c->folder, "%s/pegen", base);
  else if (home && *home == '/') length = snprintf(c->folder, sizeof c->folder, "%s/.cache/pegen", home);
  if (length <= 0 || length >= (int)sizeof c->folder || !make_folders(c->folder) || !realpath(c->folder, whole) ||
      strlen(whole) >= sizeof c->folder || !is_kept(whole) || lstat(whole, &is) || !S_ISDIR(is.st_mode) || !is_own(&is))
    whole[0] = 0;
  strcpy(c->folder, whole);
}

/* ---- names --------------------------------------------------------------------------- */

static XXH128_hash_t digest(const bytes *b) { return XXH3_128bits(b->data, b->size); }

static void sources_path(const cache *c, char path[PATH_MAX]) {
  XXH128_hash_t d = digest(c->key);
  snprintf(path, PATH_MAX, "%s/%016llx%016llx.sources", c->folder, (unsigned long long)d.high64,
           (unsigned long long)d.low64);
}

static void object_path(const cache *c, const bytes *made_of, char path[PATH_MAX]) {
  XXH128_hash_t key = digest(c->key), d = digest(made_of);
  snprintf(path, PATH_MAX, "%s/%016llx%016llx-%016llx%016llx.so", c->folder, (unsigned long long)key.high64,
           (unsigned long long)key.low64, (unsigned long long)d.high64, (unsigned long long)d.low64);
}

/* By the time of the file's last change of any kind, which nobody can set: one that is moved into another's place
 * brings its time of writing with it. */
static bool is_older(const char *path, struct timespec since) {
  struct stat file;
  if (stat(path, &file)) return false;
  return file.st_ctim.tv_sec < since.tv_sec ||
         (file.st_ctim.tv_sec == since.tv_sec && file.st_ctim.tv_nsec < since.tv_nsec);
}

/* The key and, of every source, its name and a digest of what it holds now. since: NULL, or all must be older. */
static bool list_contents(const cache *c, const bytes *sources, const struct timespec *since, bytes *made_of) {
  pegen_bytes_add(made_of, c->key->data, c->key->size);
  bool ok = sources->size > 0 && sources->data[sources->size - 1] == 0;
  for (const char *name = sources->data; ok && name < sources->data + sources->size; name += strlen(name) + 1) {
    bytes text = {0};
    ok = pegen_bytes_read_file(&text, name) && (!since || is_older(name, *since));
    XXH128_hash_t d = digest(&text);
    pegen_bytes_add_text(made_of, name);
    pegen_bytes_add(made_of, &d, sizeof d);
    pegen_bytes_free(&text);
  }
  return ok && !made_of->failed;
}

/* ---- files --------------------------------------------------------------------------- */

/* Complete under its name, or not there. */
static bool write_file(const char *path, const bytes *content) {
  char temporary[PATH_MAX + 8];
  snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
  if (content->failed) return false;
  int fd = mkostemp(temporary, O_CLOEXEC);
  if (fd < 0) return false;
  bool ok = pegen_bytes_write(fd, content->data, content->size);
  ok = !close(fd) && ok && !rename(temporary, path);
  if (!ok) unlink(temporary);
  return ok;
}

static void check_of(const char *data, const footer *f, uint64_t check[2]) {
  XXH128_hash_t content = XXH3_128bits(data, f->object + f->header + f->made_of);
  const uint64_t all[] = {content.low64, content.high64, f->object, f->header, f->made_of};
  XXH128_hash_t d = XXH3_128bits(all, sizeof all);
  check[0] = d.low64;
  check[1] = d.high64;
}

static bool read_footer(const bytes *file, footer *f) {
  if (file->size < sizeof *f) return false;
  size_t rest = file->size - sizeof *f;
  memcpy(f, file->data + rest, sizeof *f);
  if (memcmp(f->magic, magic, sizeof magic) || f->object > rest || f->header > rest - f->object ||
      f->made_of != rest - f->object - f->header)
    return false;
  uint64_t check[2];
  check_of(file->data, f, check);
  return !memcmp(check, f->check, sizeof check);
}

/* A file that nobody else may write to: what is looked at is what is read. */
static bool read_own(const char *path, bytes *file) {
  int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat is;
  if (fd >= 0 && !fstat(fd, &is) && is_own(&is)) return pegen_bytes_read_open(file, fd);
  if (fd >= 0) close(fd);
  return false;
}

/* Reads an object and its header from a file, if the file is sound and was made of exactly made_of. */
static bool read_entry(const char *path, const bytes *made_of, bytes *object, bytes *header) {
  bytes file = {0};
  footer f;
  bool ok = read_own(path, &file) && read_footer(&file, &f) && f.made_of == made_of->size &&
            !memcmp(file.data + f.object + f.header, made_of->data, made_of->size);
  if (ok) {
    pegen_bytes_add(object, file.data, f.object);
    pegen_bytes_add(header, file.data + f.object, f.header);
  }
  pegen_bytes_free(&file);
  return ok && !object->failed && !header->failed;
}

bool pegen_cache_find(const cache *c, bytes *object, bytes *header) {
  char list[PATH_MAX], path[PATH_MAX];
  bytes sources = {0}, made_of = {0};
  if (!c->folder[0]) return false;
  sources_path(c, list);
  bool ok = read_own(list, &sources) && list_contents(c, &sources, NULL, &made_of);
  if (ok) {
    object_path(c, &made_of, path);
    ok = read_entry(path, &made_of, object, header);
  }
  if (ok) { /* its time of use; a folder that cannot be written to is not trimmed either */
    utimensat(AT_FDCWD, path, NULL, 0);
    utimensat(AT_FDCWD, list, NULL, 0);
  }
  pegen_bytes_free(&sources);
  pegen_bytes_free(&made_of);
  return ok;
}

/* The list with every path from the root. */
static bool make_absolute(const bytes *sources, bytes *absolute) {
  bool ok = sources->size > 0 && !sources->data[sources->size - 1];
  for (const char *name = sources->data; ok && name < sources->data + sources->size; name += strlen(name) + 1)
    if (strcmp(name, SPAWN_TEXT)) ok = pegen_bytes_add_path(absolute, name); /* a text is part of the key */
  return ok;
}

bool pegen_cache_store(const cache *c, const bytes *read_from, struct timespec since, const bytes *object,
                       const bytes *header, char path[PATH_MAX]) {
  bytes sources = {0}, made_of = {0}, file = {0};
  char list[PATH_MAX];
  bool ok = c->folder[0] && make_absolute(read_from, &sources) && list_contents(c, &sources, &since, &made_of);
  if (ok) {
    footer f = {.object = object->size, .header = header->size, .made_of = made_of.size};
    memcpy(f.magic, magic, sizeof magic);
    pegen_bytes_add(&file, object->data, object->size);
    pegen_bytes_add(&file, header->data, header->size);
    pegen_bytes_add(&file, made_of.data, made_of.size);
    if (!file.failed) check_of(file.data, &f, f.check);
    pegen_bytes_add(&file, &f, sizeof f);
    object_path(c, &made_of, path);
    sources_path(c, list);
    ok = write_file(path, &file) && write_file(list, &sources);
  }
  pegen_bytes_free(&sources);
  pegen_bytes_free(&made_of);
  pegen_bytes_free(&file);
  return ok;
}
