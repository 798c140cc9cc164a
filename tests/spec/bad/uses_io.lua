-- error: 'io' is not available
io.write("x") -- HERE
