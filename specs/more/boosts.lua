-- Boosts: hyperbolic turns of Cl(1,1), which change lengths and keep those of Minkowski's form x0^2 - x1^2.
-- "HoPE: Hyperbolic Rotary Positional Encoding for Stable Long-Range Dependency Modeling in Large Language Models" (Dai
-- et al.), its matrices B: by the rapidity u = theta r, theta = scale base^(-2i/D),
--   y0 = cosh(u) x0 - sinh(u) x1, y1 = cosh(u) x1 - sinh(u) x0.
-- Boosts are symmetric, so that a score of rows that were both boosted sees the sum of their positions; sides = "dual"
-- boosts k by -theta r and q by R^-T, so by theta r, and scores see the difference. They grow as cosh(u): keep
-- rapidities small.
-- damping: HoPE's theta' in units of scale, above 1, by which a query at m is multiplied by e^(-theta' m) and a key at
-- n by e^(theta' n) (sides = "same": by the kernel of -D inverse=true), so that scores fall with the distance m - n (as
-- in the code of HoTHP after it, where theta' = 1.0001 + softplus of a learned number). 0, the default: none.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local base = pe.option("base", 10000.0, "frequency base")
local scale = pe.option("scale", 0.01, "rapidity per unit of position of the first pair")
local sides = pe.option("sides", "dual", "q takes R^-T, or R as k does", { "dual", "same" })
local damping = pe.option("damping", 0.0, "theta' of HoPE over scale; 0: none, otherwise above 1")
local layout = pe.option("layout", "interleaved", "pairs (2j, 2j+1) or (j, j + n/2)", { "interleaved", "split" })

if damping ~= 0 and damping <= 1 then
  error("option 'damping' is " .. damping .. ", 0 or a number above 1 was expected: boosts outgrow a smaller one")
end

local function fall(r) return pe.exp(-damping * scale * r.t) end
local function rise(r) return pe.exp(damping * scale * r.t) end

return pe.encoding {
  name = "boosts",
  doc = "hyperbolic turns, boosts of Cl(1,1) (Dai et al., HoPE)",
  axes = { "t" },
  head_dim = D,
  block = pe.multivector { algebra = { 1, 1, 0 }, grades = { 1 } },
  layout = layout,
  generators = pe.bivector { e12 = 1 },
  sides = sides,
  phase = function(_, i) return (sides == "dual" and -scale or scale) * base ^ (-2 * i / D) end, -- q's is theta
  amplitude = damping > 0 and { q = fall, k = sides == "dual" and rise or fall } or 1,
}
