-- error: 'package' is not available
local p = package.path -- HERE
