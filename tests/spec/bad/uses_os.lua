-- error: 'os' is not available
os.execute("true") -- HERE
