-- LookHere: every head looks in its own direction, within a field of view, and less the further away.
-- "LookHere: Vision Transformers with Directed Attention Generalize and Extrapolate" (Fuller et al.), section 3:
--   bias = -global_slope * slope_layer * slope_head * |r_j - r_i| where the key lies in the head's field of view, else
--   -infinity.
-- Directions, slopes and boundaries are those of the authors' code: a field of view includes its edges, and every head
-- sees its own token. h grows downwards, w to the right. Directions are given as the authors name them, one word for
-- each group of heads (the first words get more heads where they do not come out even):
--   LH-180 "halves-none", LH-90 "corners-triangles-none", LH-45 "eighths1-eighths2-none".
-- The appendix' variants: none1zero3 and its like, of which some heads see no distance; zerohalves, zerocorners and
-- zerotriangles, which have a field of view and no distance in it; center, whose distance is the key's from the image's
-- centre: a third axis, `centre`, that distance in `k_positions` and 0 in `positions`.
-- Prefix tokens (-D skip_tokens=1) see all and are seen by all.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")
local H = pe.option("heads", 12, "heads", { 4, 6, 8, 12, 16 })
local directions = pe.option("directions", "halves-none", "groups of heads, words joined by '-'")
local distance = pe.option("distance", "linear", "what a slope multiplies: the distance, its root or its square", {
  "linear", "sqrt", "square" })
local layer = pe.option("layer", 0, "layer, from 0")
local depth = pe.option("depth", 12, "layers")
local first = pe.option("first_slope", 1.5, "slope of the first layer")
local last = pe.option("last_slope", 0.5, "slope of the last layer; between them linear")
local global = pe.option("global_slope", 1.0, "factor of all slopes")

-- A field of view is where (a h + b w >= 0) for each of its pairs { a, b }: half planes, two at most. An eighth lies
-- between a diagonal and an axis: of its triangle's two diagonals the other follows.
local up, down, left, right = { -1, 0 }, { 1, 0 }, { 0, -1 }, { 0, 1 }
local up_right, up_left, down_right, down_left = { -1, 1 }, { -1, -1 }, { 1, 1 }, { 1, -1 }
local tri_up, tri_down = { up_right, up_left }, { down_right, down_left }
local tri_left, tri_right = { up_left, down_left }, { up_right, down_right }

local VIEWS = {
  none = { {}, {}, {}, {} },
  zero = { {}, {}, {}, {} },
  halves = { { up }, { down }, { left }, { right } },
  corners = { { up, left }, { up, right }, { down, left }, { down, right } },
  triangles = { tri_up, tri_down, tri_left, tri_right },
  diagonals = { { up_right }, { up_left }, { down_right }, { down_left } },
  eighths1 = { { up_right, left }, { down_right, left }, { down_left, up }, { down_right, up } },
  eighths2 = { { up_left, right }, { down_left, right }, { up_left, down }, { up_right, down } },
}
-- From which of a word's four heads on slopes are 0, and whether all of its slopes are those of heads that see all.
local FLAT_FROM = {
  zero = 1, none1zero3 = 2, none2zero2 = 3, none3zero1 = 4, zerohalves = 1, zerocorners = 1, zerotriangles = 1,
}
for word in pairs(FLAT_FROM) do VIEWS[word] = VIEWS[word:match "^zero(%l+)"] or VIEWS.none end
VIEWS.center = VIEWS.none

-- Heads of each word: four at a time, the first words again where heads are left.
local words = {}
for word in directions:gmatch "[^-]+" do
  assert(VIEWS[word], "option 'directions' has the word '" .. word ..
    "'; none, zero, halves, corners, triangles, diagonals, eighths1, eighths2, center, none1zero3, none2zero2, " ..
    "none3zero1, zerohalves, zerocorners and zerotriangles were expected")
  words[#words + 1] = word
end
assert(H == 6 and #words == 2 or #words >= 1 and H % 4 == 0 and 4 * #words <= H,
  "option 'heads' is " .. H .. " and 'directions' has " .. #words .. " words, " .. directions .. "; four heads for " ..
  "each of its words were expected (or more, in fours), or 6 heads with two words, as directions=" ..
  (H == 6 and "halves-none" or "halves") .. " heads=" .. (H == 6 and 6 or math.max(4, (H + 3) // 4 * 4)))

local views, slopes, centres = {}, {}, {}
local has_centre = false
local left_over = H // 4 - #words
for index, word in ipairs(words) do
  local times = 1
  if #words == 1 then times = H // 4
  elseif left_over > 0 and (index == 1 or #words == 2 and H == 16) then
    times = 2
    left_over = left_over - 1
  end
  local is_open = word == "none" or word == "center" or FLAT_FROM[word] ~= nil
  assert(H ~= 6 or index == 1 or is_open, "option 'directions' of 6 heads has '" .. word ..
    "' as its second word; one of heads that see all was expected, as none")
  for turn = 1, times do
    for i = 1, H == 6 and index == 2 and 2 or 4 do
      views[#views + 1] = VIEWS[word][i]
      local slope = 2.0 ^ -turn
      if is_open then slope = 0.25 ^ (times == 1 and i or (4 * (turn - 1) + i - 1) // times + 1) end
      if FLAT_FROM[word] and i >= FLAT_FROM[word] then slope = 0.0 end
      has_centre = has_centre or word == "center"
      slopes[#slopes + 1], centres[#centres + 1] = word == "center" and 0.0 or slope, word == "center" and slope or 0.0
    end
  end
end
assert(#views == H,
  "option 'directions' does not divide the heads; one to four words were expected, of four heads each")

local most = 0 -- half planes of a view: as many for every head, so that heads differ in numbers alone
for _, view in ipairs(views) do most = math.max(most, #view) end

local layer_slope = depth > 1 and first + (last - first) * layer / (depth - 1) or first

local function weighed(length)
  if distance == "sqrt" then return pe.sqrt(length) end
  return distance == "square" and length ^ 2 or length
end

return pe.encoding {
  name = "lookhere",
  doc = "LookHere (Fuller et al.): directed heads with a field of view and a slope",
  axes = has_centre and { "h", "w", "centre" } or { "h", "w" },
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
  heads = H,
  bias = function(delta, head)
    local factor, inside = -global * layer_slope, nil
    local bias = factor * slopes[head + 1] * weighed(pe.norm { delta.h, delta.w })
    if has_centre then bias = bias + factor * centres[head + 1] * delta.centre end
    for i = 1, most do
      local half = views[head + 1][i] or { 0, 0 }
      local side = half[1] * delta.h + half[2] * delta.w
      inside = inside and pe.min(inside, side) or side
    end
    return inside and pe.where(inside, 0, pe.masked, bias) or bias
  end,
}
