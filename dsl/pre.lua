-- pre: the field `pre` of blocks of blades, what becomes of each channel before it turns.
local core = ...
local check = core.include "check"
local pre = {}

local ANY = 255 -- what a function takes that takes any number, as the vocabulary's own do

-- The merged expression of function(x); nil: channels turn as they are. block: of pe.encoding; basis: its field.
function pre.map_of(map, word, block, basis)
  if map == nil then return nil end
  if type(map) ~= "function" then check.wrong(word, "pre", map, "function(x), the new value of a channel") end
  local parameters = core.parameters(map)
  if parameters > 1 and parameters < ANY then
    check.fail_in(map, "pre takes %d values; function(x) was expected: the map is the same for all blocks and heads, "
      .. "of q and of k", parameters)
  end
  if block.dense or basis ~= nil then
    check.fail_field("pre", "'pre' goes with blocks of blades and no 'basis': there channels are turned as they come, "
      .. "not by matrices of whole heads; pe.plane(), pe.vector(n) or pe.multivector{...} was expected")
  end
  local value = map(core.channel())
  if not core.is_expression(value) then
    check.fail_in(map, "pre is %s, an expression of x was expected", check.show(value))
  end
  local merged = core.merge(value, 1)
  local reads, alone = core.reads_channel(merged)
  if not reads then check.fail_in(map, "pre does not depend on x, which is what the channel holds") end
  if not alone then
    check.fail_in(map, "pre reads more than x; a map of channels is made of x and numbers, not of positions, operands "
      .. "or inputs")
  end
  return merged
end

-- What a map of channels does not go with, asked when the options are known.
function pre.check_direction(map, inverse)
  if map ~= nil and inverse then
    check.fail_field("pre", "a map of channels is not undone: 'inverse' turns back alone, and 'pre' cannot be there "
      .. "with it")
  end
end

return pre
