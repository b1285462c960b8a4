package member

import (
	"errors"
	"fmt"
	"io"

	"refract.dev/tree/raw"
)

// eventFramer splits the answer to a watch into events, which are JSON objects in sequence. It only looks for the end
// of each object; the decoder finds invalid content.
type eventFramer struct{}

// NewFrameReader implements [runtime.Framer].
func (eventFramer) NewFrameReader(from io.ReadCloser) io.ReadCloser { return &frameReader{from: from} }

// NewFrameWriter implements [runtime.Framer]. It is not used.
func (eventFramer) NewFrameWriter(w io.Writer) io.Writer { return w }

// frameReader reads one object at a time.
type frameReader struct {
	from io.ReadCloser
	// read[begin:end] was read and is not returned yet. read[:looked] was scanned.
	read               []byte
	begin, looked, end int
	nesting            nesting
	// frame is a part of read: the rest of an object that did not fit into the buffer of the caller.
	frame []byte
}

// firstRead is the initial size of the buffer for events, in bytes.
const firstRead = 4 << 10

// Read implements [io.Reader]. The error is [io.ErrShortBuffer] if more of the object is to come.
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

// next reads until an object is complete.
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
		return nil // The next read returns the error again.
	case errors.Is(err, io.EOF) && f.nesting.depth > 0:
		return io.ErrUnexpectedEOF
	}
	return err
}

// Close implements [io.Closer].
func (f *frameReader) Close() error { return f.from.Close() }

// nesting is the state of the scanner within an object.
type nesting struct {
	depth           int
	quoted, escaped bool
}

// add scans p up to the end of the object, and returns the number of scanned bytes.
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

// untilMeaning returns how many bytes of a string come before the next quote or backslash.
func untilMeaning(p []byte) int {
	for i, b := range p {
		if b == '"' || b == '\\' {
			return i
		}
	}
	return len(p)
}
