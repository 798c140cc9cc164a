-- error: 'loadstring' is not available
loadstring("return 1")() -- HERE
