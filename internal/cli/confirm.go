package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// confirm asks a question that the user answers with yes or no. It returns an error if the input is not a terminal.
func confirm(s *streams, question string) (bool, error) {
	f, ok := s.in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return false, withHint(errors.New("there is no terminal for the confirmation"), "--yes confirms")
	}
	fmt.Fprintf(s.err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(f).ReadString('\n')
	if err != nil && answer == "" {
		fmt.Fprintln(s.err)
		return false, nil // The end of the input counts as no.
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	default:
		return false, nil
	}
}
