-- Names of a position's axes by their number: t; h, w; d, h, w; from four on t, d, h, w and x5, x6, ...
return function(count)
  local named = ({ { "t" }, { "h", "w" }, { "d", "h", "w" } })[count]
  if named then return named end
  named = { "t", "d", "h", "w" }
  for a = 5, count do named[a] = "x" .. a end
  return named
end
