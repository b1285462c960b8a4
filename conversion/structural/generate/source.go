package generate

// Seeded returns a Source whose numbers depend only on the seed. It uses SplitMix64, whose sequences are very different
// even for similar seeds (https://doi.org/10.1145/2660193.2660195). It is not safe for concurrent use.
func Seeded(seed uint64) Source { return &splitMix{state: seed} }

type splitMix struct{ state uint64 }

func (s *splitMix) Uint64() uint64 {
	s.state += 0x9e3779b97f4a7c15
	z := s.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
