/* base/status: how the program ends. */
#pragma once

/* Exit codes: what went wrong, and whose fault it is. */
enum { STATUS_OK = 0, STATUS_ERROR = 1, STATUS_USAGE = 2, STATUS_BUG = 3 };
