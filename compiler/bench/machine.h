/* bench/machine: what the figures were measured on. */
#pragma once

#include "base/json.h"

/* The machine as a member "machine" of the object at hand: system, processor, its features and its caches, as Linux
 * tells them (/proc/cpuinfo, /sys/devices/system/cpu). What it does not tell is left out. */
void machine_json(json_writer *w);
