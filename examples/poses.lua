-- Poses of SE(3) as positions: where a token is and how it is turned, as a camera, a joint or a grasp is.
-- LieRE ("Lie Rotational Positional Encodings", Ostmeier et al.) names poses among what its rotations cannot encode: a
-- motion that moves things away is no rotation. GTA (Miyato et al.) has them as matrices of 4 x 4, as here. Where
-- cameras project, too, it is prope.lua.
--   score(i, j) = q_i . D_i^-1 D_j k_j for each four channels,  D = [R t; 0 1],
-- so that only the pose of one token as the other sees it counts. Rows of q take D^-T, and rows of k and v take D. The
-- kernel of -D rows=out, which has D^-1, takes outputs of attention as q: what a query gathers stands in its own frame.
-- A position is the quaternion of R, of any length, and t: 7 numbers, whose gradients are gradients of poses.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head, a multiple of 4")
local length = pe.option("length", 1.0, "a length of the scene: t is divided by it", { range = { 1e-3, 1e3 } })
local rows = pe.option("rows", "scores", "scores: D^-T of q, D of k and v; out: D^-1, of outputs as q", {
  "scores", "out" })

if D % 4 ~= 0 then error("option 'head_dim' is " .. D .. ", a multiple of 4 was expected") end

local function pose(r)
  local n = 2 / pe.max(r.w ^ 2 + r.i ^ 2 + r.j ^ 2 + r.k ^ 2, 1e-30) -- 0 turns nothing
  local function at(a, b) return n * (r[a] * r[b]) end
  local R = {
    { 1 - at("j", "j") - at("k", "k"), at("i", "j") - at("w", "k"), at("i", "k") + at("w", "j") },
    { at("i", "j") + at("w", "k"), 1 - at("i", "i") - at("k", "k"), at("j", "k") - at("w", "i") },
    { at("i", "k") - at("w", "j"), at("j", "k") + at("w", "i"), 1 - at("i", "i") - at("j", "j") },
  }
  return R, { r.x / length, r.y / length, r.z / length }
end

local function direct(r)
  local R, t = pose(r)
  for a = 1, 3 do R[a][4] = t[a] end
  R[4] = { 0, 0, 0, 1 }
  return R
end

local function inverse(r)
  local R, t = pose(r)
  local back = { {}, {}, {}, { 0, 0, 0, 1 } }
  for a = 1, 3 do
    for b = 1, 3 do back[a][b] = R[b][a] end
    back[a][4] = -(R[1][a] * t[1] + R[2][a] * t[2] + R[3][a] * t[3])
  end
  return back
end

local function transposed(r)
  local of, made = inverse(r), { {}, {}, {}, {} }
  for a = 1, 4 do
    for b = 1, 4 do made[a][b] = of[b][a] end
  end
  return made
end

return pe.encoding {
  name = "poses",
  doc = "poses of SE(3): scores of one token's pose as the other sees it",
  axes = { "w", "i", "j", "k", "x", "y", "z" },
  head_dim = D,
  block = pe.linear(4),
  matrix = rows == "out" and inverse or { q = transposed, k = direct },
}
