-- error: only numbers, strings and booleans
for k in pairs { [{}] = 1 } do end -- HERE
