return { of = function(base, i) return base ^ (-i / 8) end }
