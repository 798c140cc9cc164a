-- a module, no spec
return function(i) return 100 ^ (-i / 8) end
