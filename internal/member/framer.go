package member

import (
	"errors"
	"fmt"
	"io"

	"refract.dev/tree/raw"
)

// eventFramer finds the events in what a watch answers: JSON objects, one behind the other. It looks for where each ends, and no more;
// what decodes it finds what is wrong in it.
type eventFramer struct{}

// NewFrameReader implements [runtime.Framer].
func (eventFramer) NewFrameReader(from io.ReadCloser) io.ReadCloser { return &frameReader{from: from} }

// NewFrameWriter implements [runtime.Framer]. Nobody writes a watch here.
func (eventFramer) NewFrameWriter(w io.Writer) io.Writer { return w }

// frameReader reads one object at a time.
type frameReader struct {
	from io.ReadCloser
	// read[begin:end] was read and is in no object that was given; up to looked, it was looked at.
	read               []byte
	begin, looked, end int
	nesting            nesting
	// frame is the rest of an object that did not fit into what it was to be read into, a part of read.
	frame []byte
}

// firstRead is how much room there is for events at first, in bytes.
const firstRead = 4 << 10

// Read implements [io.Reader]: the error is [io.ErrShortBuffer] if more of the object is to come.
func (f *frameReader) Read(p []byte) (int, error) {
	if len(f.frame) == 0 {
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.frame)
	if f.frame = f.frame[n:]; len(f.frame) > 0 {
		return n, io.ErrShortBuffer
	}
	return n, nil
}

// next reads until there is an object.
func (f *frameReader) next() error {
	for {
		n, ended, err := f.nesting.add(f.read[f.looked:f.end])
		f.looked += n
		switch {
		case err != nil:
			return err
		case ended:
			f.frame = f.read[f.begin:f.looked]
			f.begin = f.looked
			return nil
		}
		if err := f.fill(); err != nil {
			return err
		}
	}
}

// fill reads more.
func (f *frameReader) fill() error {
	f.end = copy(f.read, f.read[f.begin:f.end])
	f.looked, f.begin = f.looked-f.begin, 0
	if f.end == len(f.read) {
		larger := make([]byte, max(firstRead, 2*len(f.read)))
		copy(larger, f.read)
		f.read = larger
	}
	n, err := f.from.Read(f.read[f.end:])
	f.end += n
	switch {
	case n > 0:
		return nil // If there was an error it comes again.
	case errors.Is(err, io.EOF) && f.nesting.depth > 0:
		return io.ErrUnexpectedEOF
	}
	return err
}

// Close implements [io.Closer].
func (f *frameReader) Close() error { return f.from.Close() }

// nesting is how deep in an object is what comes next.
type nesting struct {
	depth           int
	quoted, escaped bool
}

// add looks at what comes next, and returns how many bytes it has looked at: all, or up to where the object ends.
func (s *nesting) add(p []byte) (n int, ended bool, err error) {
	for i := 0; i < len(p); i++ {
		switch b := p[i]; {
		case s.escaped:
			s.escaped = false
		case s.quoted:
			if i += untilMeaning(p[i:]); i < len(p) {
				s.escaped = p[i] == '\\'
				s.quoted = s.escaped
			}
		case b == '{', b == '[':
			s.depth++
		case b == '}', b == ']':
			if s.depth--; s.depth == 0 {
				return i + 1, true, nil
			}
		case b == '"':
			s.quoted = true
		}
		if s.depth <= 0 && !isSpace(p[i]) {
			return i, false, fmt.Errorf("%w: want an object, got %q", raw.ErrSyntax, p[i])
		}
	}
	return len(p), false, nil
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\r' || b == '\t' }

// untilMeaning returns how many bytes of a string stand for themselves.
func untilMeaning(p []byte) int {
	for i, b := range p {
		if b == '"' || b == '\\' {
			return i
		}
	}
	return len(p)
}
