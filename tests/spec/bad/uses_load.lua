-- error: 'load' is not available
load("return 1")() -- HERE
