-- error: 'collectgarbage' is not available
collectgarbage("stop") -- HERE
