-- additive: the field `add` of pe.encoding, something of the position that is added to each channel.
local core = ...
local check = core.include "check"
local operands = core.include "operands"
local options = core.include "options"
local place = core.include "place"
local additive = {}

local WORD = "pe.encoding"

-- Fills `described`, which core.finish takes: `add` is called for every channel (and head).
function additive.describe(given, described)
  local add, channels, heads = given.add, described.head_dim, described.heads
  if type(add) ~= "function" then check.wrong(WORD, "add", add, "function(r, channel, head)") end
  if heads * channels > core.limits.rows then
    check.fail_field("heads", "%d heads of %d channels; at most %d in all were expected", heads, channels,
      core.limits.rows)
  end
  core.begin(channels)
  operands.open(described.axes, heads, channels)
  local r, rows, values = place.coordinates_of("position", described.axes), core.parameters(add) < 3 and 1 or heads, {}
  for head = 0, rows - 1 do
    for channel = 0, channels - 1 do
      local value = add(r, channel, head)
      if not core.is_expression(value) then
        check.fail_in(add, "add is %s in channel %d, an expression of the position was expected", check.show(value),
          channel)
      end
      values[#values + 1] = value
    end
  end
  operands.close()
  local merged, head, channel = core.merge(values, rows)
  if not merged then
    check.fail_in(add,
      "add has another form in channel %d of head %d than in channel 0: " ..
        "the same operations on other numbers were expected",
      channel, head)
  end
  described.additive = { value = merged, channels = channels }
  described.skip_tokens, described.grid, described.inverse = options.tokens(#described.axes, true)
end

return additive
