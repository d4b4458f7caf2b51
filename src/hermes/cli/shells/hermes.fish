# Completion of hermes for fish. Made by `hermes completion fish`; keep it as hermes.fish in ~/.config/fish/completions.
function __hermes_offers
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l offers (eval (string escape -- (string replace -r '^~' $HOME -- $words[1])) __complete (string escape -- $words[2..-1] $typed) 2>/dev/null)
    if test "$offers[1]" = ":files"
        __fish_complete_path "$typed"
    else
        printf '%s\n' $offers
    end
end
complete -c hermes -f -k -a '(__hermes_offers)'
