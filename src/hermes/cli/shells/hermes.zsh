#compdef hermes
# Completion of hermes for zsh. Made by `hermes completion zsh`; `source` it after compinit, or keep it as _hermes in a
# folder of $fpath.
_hermes() {
    local -a offers
    local line word
    for line in "${(@f)$(${(Q)words[1]/#\~/$HOME} __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        word=${line%%$'\t'*}
        if [[ $word == :files ]]; then
            _files
            return
        fi
        if [[ $line == *$'\t'* ]]; then
            offers+=("${word//:/\\:}:${line#*$'\t'}")
        else
            offers+=("${word//:/\\:}")
        fi
    done
    (( $#offers )) && _describe -V hermes offers
}
if [[ $funcstack[1] == _hermes ]]; then
    _hermes "$@"
else
    compdef _hermes hermes
fi
