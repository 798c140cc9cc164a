-- error: must return pegen.encoding
return 1
