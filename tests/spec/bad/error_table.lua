-- error: raised a table as an error
error {} 
