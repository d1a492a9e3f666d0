au BufRead,BufNewFile *.levee setfiletype levee
