-- error: out of memory: a spec may use
-- An error in __close takes the place of the one that memory is lacking.
local function greedy()
  local closed <close> = setmetatable({}, { __close = function() error "hidden" end })
  local t = {}
  while true do t[#t + 1] = { #t } end -- HERE
end
for _ = 1, 1000 do pcall(greedy) end
