-- FoPE: RoPE whose cosines and sines are Fourier series, and without frequencies that training has not seen through.
-- "Fourier Position Embedding: Enhancing Attention's Periodic Extension for Length Generalization" (Hua et al.),
-- as the listing of its appendix has it:
--   y_j = x_j C_hj(t) - x_(j+D/2) S_hj(t),   y_(j+D/2) = x_(j+D/2) C_hj(t) + x_j S_hj(t),
--   C_hj(t) = sum over f of a_hfj cos(omega_f t),   S_hj(t) = sum over f of b_hfj sin(omega_f t),
-- where omega_f = base^(-2f/D) are those of at least 2 pi / `trained`, one turn in the trained length, and the first of
-- the D/4 pairs, at most as many as there are frequencies. Other channels pass through. a and b are the operands
-- `cosines` and `sines`: the paper divides its coefficients by their sums over f, which is the caller's.
-- The paper's listing turns the other way, and multiplies the other channels by I - J, both of q and k alike.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 1, "heads with coefficients of their own; 1: all heads share them")
local base = pe.option("base", 10000.0, "frequency base", { range = { 10.0, 1e7 } })
local trained = pe.option("trained", 512, "trained context length in tokens")

if base <= 1 then error("option 'base' is " .. base .. ", a number above 1 was expected") end
if trained < 7 then error("option 'trained' is " .. trained .. ", at least 7 was expected") end
local function omega(f) return base ^ (-2 * f / D) end
local count = 0
while count < D // 2 and omega(count) >= 2 * pe.pi / trained do count = count + 1 end
local turning = math.min(count, D // 4)
if turning == 0 then error("option 'head_dim' is " .. D .. ", at least 4 was expected") end

local function series(name, what)
  return pe.learned {
    name = name,
    shape = { "heads", count, "blocks" },
    doc = "share of each frequency in the " .. what .. " of a pair",
    source = "Fourier Position Embedding, Hua et al.",
    init = function(_, f, j) return f == j and 1.0 or 0.0 end,
  }
end
local cosines, sines = series("cosines", "cosine"), series("sines", "sine")

return pe.encoding {
  name = "fope",
  doc = "RoPE by Fourier series of the frequencies that training has seen (FoPE, Hua et al.)",
  axes = { "t" },
  head_dim = D,
  heads = heads,
  span = { 0, 2 * turning },
  block = pe.linear(2),
  layout = function(c, j) return j + c * (D // 2) end,
  matrix = function(r, j, head)
    local c, s = 0, 0
    for f = 0, count - 1 do
      local angle = omega(f) * r.t
      c, s = c + cosines(head, f, j) * pe.cos(angle), s + sines(head, f, j) * pe.sin(angle)
    end
    return { { c, -s }, { s, c } }
  end,
}
