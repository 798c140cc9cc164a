-- remedy: what a value says where it is used as if it were a number, and how it would be used.
local core = ...
local remedy = {}

local EVENTS = { "__add", "__sub", "__mul", "__div", "__unm", "__pow", "__idiv", "__mod", "__lt", "__le" }

-- number(metatable, is, explain): arithmetic and comparisons with values of the metatable, of which `is` knows one, end
-- with explain(value), which fails. `__remedy` is asked by arithmetic on expressions (dsl/trace.c).
function remedy.number(metatable, is, explain)
  local event = core.word(function(x, y) explain(is(x) and x or y) end)
  for _, name in ipairs(EVENTS) do metatable[name] = event end
  metatable.__remedy = event
end

return remedy
