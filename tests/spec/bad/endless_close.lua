-- error: ran for more than 50 million instructions
local mt = { __close = function() while true do end end }
local function f()
  local x <close> = setmetatable({}, mt)
  error "away"
end
while true do pcall(f) end
