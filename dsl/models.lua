-- models: which models use an encoding and with what options, for people who look for one (`pegen specs`).
local core = ...
local check = core.include "check"
local options = core.include "options"
local models = {}

local WORD = "pe.encoding"

-- { "Llama 3.1", "Llama 3.2", layout = "split", ... }: names, and values of the spec's options.
local function read(entry, i)
  local what = string.format("entry %d of 'models'", i)
  if type(entry) ~= "table" or getmetatable(entry) ~= nil then
    check.fail_field("models", "%s is %s; names and options were expected, as { \"Llama 2\", layout = \"split\" }",
      what, check.show(entry))
  end
  local model = { names = {}, defines = {} }
  for key, value in pairs(entry) do -- numbers come first, then words in their order
    if math.type(key) == "integer" then
      if key ~= #model.names + 1 then check.fail_field("models", "%s has holes in its list of names", what) end
      model.names[key] = check.text(WORD, "models", value)
    elseif type(key) ~= "string" then
      check.fail_field("models", "%s has a value without a name", what)
    else
      model.defines[#model.defines + 1] = { name = key, value = options.given_text(key, value, what) }
    end
  end
  if #model.names > core.limits.models then check.fail_field("models", "%s names too many models", what) end
  if #model.names == 0 then check.fail_field("models", "%s names no model", what) end
  for _, name in ipairs(model.names) do
    if not name:find "%w" then check.fail_field("models", "%s has a name without a letter", what) end
  end
  return model
end

-- For core.finish, once all options are declared.
function models.list(given)
  if given == nil then return {} end
  local entries = check.list(WORD, "models", given, "models, { name, option = value, ... }")
  if #entries > core.limits.models then
    check.fail_field("models", "%d models; at most %d were expected", #entries, core.limits.models)
  end
  local list = {}
  for i, entry in ipairs(entries) do list[i] = read(entry, i) end
  return list
end

return models
