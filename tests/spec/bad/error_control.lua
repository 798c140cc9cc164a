-- error: ?[2J? nothing is wrong
error("\27[2J\n nothing is wrong") -- HERE
