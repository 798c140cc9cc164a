-- error: 'dofile' is not available
dofile("/etc/passwd") -- HERE
