package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// confirm asks a question that is answered with yes or no. Where nobody can answer
// it, that is an error.
func confirm(s *streams, question string) (bool, error) {
	f, ok := s.in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return false, withHint(errors.New("there is no terminal to ask on"), "--yes answers the question")
	}
	fmt.Fprintf(s.err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(f).ReadString('\n')
	if err != nil && answer == "" {
		fmt.Fprintln(s.err)
		return false, nil // The end of input is no yes.
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	default:
		return false, nil
	}
}
