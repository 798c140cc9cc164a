-- error: 'print' is not available
print("x") -- HERE
