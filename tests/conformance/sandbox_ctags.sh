# ctags in its sandbox: 1,400 functions on its standard input, a line for each on its standard output.
source=$(awk 'BEGIN { for (i = 0; i < 1400; i++) printf "int function_%d(int a) { return a + %d; }\n", i, i }')
length=$(printf '%s' "$source" | wc -c)
{
    printf '{"command":"generate-tags","filename":"made.c","size":%d}\n' "$length"
    printf '%s' "$source"
} >request
exec ctags --_interactive=sandbox --languages=C <request
