-- Sums: elements in order, in steps and in none, by displacement and term, at one place in all terms; numbers of terms;
-- a sum inside of another; gradients through a function of the whole.
local pe = require "pegen"
local w = pe.learned { name = "w", shape = { "heads", 40 }, doc = "numbers" }
local steps = pe.learned { name = "steps", shape = { 5, 17 }, doc = "a table" }
local scores = pe.option("scores", false, "a score, not a bias")

local function total(delta, head, s)
  local inner = pe.sum(3, function(j) return pe.cos(j + 1) * w(head, j + 2) end)
  local outer = pe.sum(4, function(k)
    local at_places = 0.5 * steps(k, delta.x + 8) + steps(4 - k, 3) + 0.1 * w(head, 39)
    return w(head, 2 * k + 1) * pe.tanh(0.1 * s + inner * k) + pe.sin(k * delta.y) + at_places
  end)
  return pe.tanh(outer) + 0.1 * pe.sum(7, function(k) return w(head, (k * k) % 11) + w(head, k) end)
end

return pe.encoding {
  name = "sums",
  axes = { "x", "y" },
  head_dim = 16,
  heads = 2,
  bias = not scores and function(delta, head) return total(delta, head, delta.y) end or nil,
  score = scores and function(s, delta, head) return s + total(delta, head, s) end or nil,
}
