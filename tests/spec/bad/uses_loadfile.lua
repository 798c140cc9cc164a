-- error: 'loadfile' is not available
loadfile("/etc/passwd") -- HERE
