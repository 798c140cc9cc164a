-- error: 'debug' is not available
debug.getregistry() -- HERE
