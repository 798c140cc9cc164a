/* trim.c: keeps a cache's folder within its size. What was used least recently goes first: an entry's time of
 * writing is set anew when it is found. Other processes may read, write and trim the same folder meanwhile: a file that
 * is gone is one less to remove, one that is being read stays until it is closed, and who finds none compiles. */
#include "cache.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_NAME = 96, ABANDONED_SECONDS = 3600 }; /* a file under another name is being written for seconds at most */

typedef struct file {
  char name[MOST_NAME];
  struct timespec used;
  int64_t size;
} file;

typedef struct files {
  file *list;
  size_t count, room;
  int64_t size; /* of all */
} files;

static size_t hexadecimal(const char *name) {
  size_t n = 0;
  while (isxdigit((unsigned char)name[n])) n++;
  return n;
}

/* KEY.sources and KEY-DIGEST.so, both also while they are written; nothing else in the folder is ours. */
static bool is_ours(const char *name, bool *is_temporary) {
  if (strlen(name) >= MOST_NAME || hexadecimal(name) != 32) return false;
  const char *rest = name + 32;
  const char *ending = *rest == '-' && hexadecimal(rest + 1) == 32 ? ".so" : ".sources";
  if (*rest == '-') rest += 33;
  if (strncmp(rest, ending, strlen(ending))) return false;
  rest += strlen(ending);
  *is_temporary = *rest;
  return !*rest || (*rest == '.' && strlen(rest) == 7); /* .XXXXXX of mkostemp */
}

static void add(files *f, const char *name, const struct stat *is) {
  if (f->count == f->room) {
    size_t room = f->room ? 2 * f->room : 64;
    file *list = realloc(f->list, room * sizeof *list);
    if (!list) return; /* it counts the next time */
    f->list = list;
    f->room = room;
  }
  file *added = &f->list[f->count++];
  strcpy(added->name, name);
  added->used = is->st_mtim;
  added->size = is->st_size;
  f->size += is->st_size;
}

static void find_files(int folder, DIR *entries, files *found) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  for (const struct dirent *entry; (entry = readdir(entries));) {
    struct stat is;
    bool is_temporary;
    if (!is_ours(entry->d_name, &is_temporary) || fstatat(folder, entry->d_name, &is, AT_SYMLINK_NOFOLLOW) ||
        !S_ISREG(is.st_mode))
      continue;
    if (!is_temporary) add(found, entry->d_name, &is);
    else if (is.st_mtim.tv_sec < now.tv_sec - ABANDONED_SECONDS) unlinkat(folder, entry->d_name, 0);
  }
}

static int by_use(const void *left, const void *right) {
  const struct timespec a = ((const file *)left)->used, b = ((const file *)right)->used;
  if (a.tv_sec != b.tv_sec) return a.tv_sec < b.tv_sec ? -1 : 1;
  return (a.tv_nsec > b.tv_nsec) - (a.tv_nsec < b.tv_nsec);
}

/* An eighth more than it must, so that not every entry that comes finds the folder full. */
static void remove_oldest(int folder, files *f, int64_t most, const char *keep) {
  qsort(f->list, f->count, sizeof *f->list, by_use);
  for (size_t i = 0; i < f->count && f->size > most - most / 8; i++) {
    if (!strcmp(f->list[i].name, keep)) continue;
    unlinkat(folder, f->list[i].name, 0);
    f->size -= f->list[i].size;
  }
}

void pegen_cache_trim(const cache *c, int64_t most, const char *path) {
  DIR *entries = c->folder[0] ? opendir(c->folder) : NULL;
  const char *name = strrchr(path, '/');
  files found = {0};
  if (!entries) return;
  int folder = dirfd(entries);
  if (folder >= 0) find_files(folder, entries, &found);
  if (found.count && found.size > most) remove_oldest(folder, &found, most, name ? name + 1 : path);
  free(found.list);
  closedir(entries);
}
