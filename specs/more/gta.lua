-- GTA: attention whose values turn with their keys, and outputs back, so that what a query gathers stands in its own
-- frame. "GTA: A Geometry-Aware Attention Mechanism for Multi-View Transformers" (Miyato et al.), section 3:
--   o_i = sum over j of softmax_j(q_i . rho(g_i g_j^-1) k_j) rho(g_i g_j^-1) v_j
-- with the representation of image coordinates, SO(2) in planes of several frequencies, half of them of each axis.
-- (Camera poses, SE(3), are no function of a sum of positions.) Here R(r) = rho(g(r))^-1.
-- role = "separable" is the same group as an encoding, for attention kernels of others: q, k and v are encoded, and the
-- output by the kernel of -D inverse=true.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head, a multiple of 4")
local base = pe.option("base", 100.0, "frequency base")
local role = pe.option("role", "pairwise", "attention itself, or rows turned for another", { "pairwise", "separable" })

if D % 4 ~= 0 then error("option 'head_dim' is " .. D .. ", a multiple of 4 was expected") end
if base <= 0 then error "option 'base' is to be a positive number" end
local n = D // 4
local first = { h = 0, w = n }

return pe.encoding {
  name = "gta",
  doc = "attention that turns values with their keys, and outputs back (GTA, Miyato et al.), of image coordinates",
  axes = { "h", "w" },
  head_dim = D,
  role = role,
  values = role == "pairwise" and "same" or nil,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(axis, i)
    local k = i - first[axis]
    return k >= 0 and k < n and -base ^ (-k / n) or 0
  end,
}
