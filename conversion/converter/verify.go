package converter

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/verify"
)

const (
	// verifyObjects is the number of generated objects of each version. verifyBudget is the time limit of a
	// verification.
	verifyObjects = 200
	verifyBudget  = 5 * time.Second
	// verifyAgain is the delay before the next attempt after a verification without a result.
	verifyAgain = time.Minute
	// verifyWait is the delay before the next attempt while other policies are being verified.
	verifyWait = time.Second
	// verifying is the maximum number of concurrent verifications. It leaves some workers of the reconciler free for
	// other work.
	verifying = 2
)

// verifier verifies policies, once for each spec and definition.
type verifier struct {
	busy chan struct{} // One slot for each running verification.

	mu       sync.Mutex
	verdicts map[types.UID]verdict // The last verdict of each policy.
}

// verdict is the result of a verification.
type verdict struct {
	about  string // The fingerprint of the spec and the definition.
	seed   int64
	report *verify.Report
	err    error
	until  time.Time // The time of the next attempt; zero for none.
	waits  bool      // Other policies are being verified, so there is no result.
}

func newVerifier() *verifier {
	return &verifier{busy: make(chan struct{}, verifying), verdicts: map[types.UID]verdict{}}
}

// verify returns the verdict on a policy. A second verification would use the same generated objects, because their
// seed is derived from the UID and the generation of the policy. verify does not wait while other policies are being
// verified: waits is then true in the verdict, and the caller tries again later.
func (v *verifier) verify(ctx context.Context, p *refractv1alpha1.ConversionPolicy, c compilation) verdict {
	v.mu.Lock()
	known, ok := v.verdicts[p.UID]
	v.mu.Unlock()
	if ok && known.about == c.about && (known.until.IsZero() || time.Now().Before(known.until)) {
		return known
	}
	select {
	case v.busy <- struct{}{}:
		defer func() { <-v.busy }()
	default:
		return verdict{waits: true}
	}
	out, of := verdict{about: c.about, seed: seedOf(p)}, c.program
	if of == nil { // A remembered compilation has no program.
		var err error
		if of, _, err = compile(&p.Spec, c.definition); err != nil {
			return verdict{err: err}
		}
	}
	limited, cancel := context.WithTimeout(ctx, verifyBudget)
	defer cancel()
	out.report, out.err = verify.Run(limited, verify.Engine(of.engine), verify.Options{
		Definition: of.definition, Hub: of.policy.Hub(), Versions: of.policy.Versions(), Knowledge: of.policy,
		Seed: uint64(out.seed), Objects: verifyObjects,
	})
	if ctx.Err() != nil {
		return verdict{err: ctx.Err()} // The process ends. This proves nothing about the policy.
	}
	reason := out.state().reason
	verifications.WithLabelValues(reason).Inc()
	if reason == reasonUnverified {
		out.until = time.Now().Add(verifyAgain) // The next attempt may get more processor time.
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.verdicts) >= mostKnown {
		clear(v.verdicts)
	}
	v.verdicts[p.UID] = out
	return out
}

// seedOf returns the seed for the generated objects of a policy. It has only 32 bits, so that a user can type it.
func seedOf(p *refractv1alpha1.ConversionPolicy) int64 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", p.UID, p.Generation)
	return int64(h.Sum32())
}

// good reports whether the verification found no violation.
func (v verdict) good() bool { return v.state().reason == reasonVerified }

// violation returns the first violation; nil if there is none.
func (v verdict) violation() *verify.Violation {
	if v.report == nil {
		return nil
	}
	for i := range v.report.Laws {
		if found := v.report.Laws[i].Violations; len(found) > 0 {
			return &found[0]
		}
	}
	return nil
}

// state returns the verdict as a state of the condition Verified.
func (v verdict) state() state {
	if v.waits {
		return no(reasonUnverified, "Waiting for the verification of other policies")
	}
	if v.err != nil {
		return no(reasonUnverified, v.err.Error())
	}
	if broken := v.violation(); broken != nil {
		return no(reasonBroken, brokenLaw(broken))
	}
	if v.report.Checks == 0 {
		return no(reasonUnverified, fmt.Sprintf("Nothing could be checked in %s", verifyBudget))
	}
	text := fmt.Sprintf("%d objects broke no law", v.report.Objects)
	if !v.report.Complete {
		text += fmt.Sprintf("; not complete after %s", verifyBudget)
	}
	var kept strings.Builder
	for i := range v.report.Versions {
		if of := &v.report.Versions[i]; of.Unconverted > 0 {
			fmt.Fprintf(&kept, "; %d of %d objects in %s keep values that cannot be converted to %s",
				of.Unconverted, of.Objects, of.Version, of.Lacks)
		}
	}
	return yes(reasonVerified, text+kept.String())
}

// brokenLaw returns a message with the violated law and the object.
func brokenLaw(b *verify.Violation) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %s to %s", b.Law, b.From, b.To)
	if b.Path != "" {
		out.WriteString(", " + b.Path)
	}
	if b.Rule != "" {
		out.WriteString(" (" + b.Rule + ")")
	}
	out.WriteString(": " + b.Message)
	if object, err := yaml.Marshal(b.Object); err == nil && len(b.Object) > 0 {
		out.WriteString("\n" + string(object))
	}
	return out.String()
}

// into writes the verdict into the status of a policy.
func (v verdict) into(p *refractv1alpha1.ConversionPolicy) {
	if c := meta.FindStatusCondition(p.Status.Conditions, refractv1alpha1.ConversionVerified); v.waits && c != nil && c.ObservedGeneration == p.Generation {
		return // The earlier verdict on this generation has more information.
	}
	v.state().into(p, refractv1alpha1.ConversionVerified)
	if v.report != nil {
		p.Status.Verification = &refractv1alpha1.ConversionVerification{
			Seed: v.seed, Objects: int64(v.report.Objects), Checks: int64(v.report.Checks),
		}
	}
}
