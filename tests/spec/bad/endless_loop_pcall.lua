-- error: ran for more than 50 million instructions
while true do
  pcall(function() while true do end end)
end
