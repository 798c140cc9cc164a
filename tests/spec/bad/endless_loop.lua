-- error: ran for more than 50 million instructions
while true do end -- HERE
