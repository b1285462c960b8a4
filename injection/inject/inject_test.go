package inject

import (
	"errors"
	"testing"

	"refract.dev/tree/raw"
)

// malformed are documents that are not pods.
var malformed = map[string]string{
	"Empty":                ``,
	"NoJSON":               `{"metadata":{"labels":{"role":"frontend"}},"spec":{`,
	"Array":                `[]`,
	"Null":                 `null`,
	"MetadataIsText":       `{"metadata":"x","spec":{}}`,
	"LabelsAreAList":       `{"metadata":{"labels":[]},"spec":{}}`,
	"LabelIsNumber":        `{"metadata":{"labels":{"role":1}},"spec":{}}`,
	"AnnotationIsObject":   `{"metadata":{"annotations":{"a":{}}},"spec":{}}`,
	"NoSpec":               `{"metadata":{"labels":{"role":"frontend"}}}`,
	"SpecIsNull":           `{"metadata":{"labels":{"role":"frontend"}},"spec":null}`,
	"SpecTwice":            `{"metadata":{"labels":{"role":"frontend"}},"spec":{},"spec":{}}`,
	"MetadataTwice":        `{"metadata":{"labels":{"role":"frontend"}},"metadata":{},"spec":{}}`,
	"ContainersAreText":    `{"metadata":{"labels":{"role":"frontend"}},"spec":{"containers":"x"}}`,
	"ContainersTwice":      `{"metadata":{"labels":{"role":"frontend"}},"spec":{"containers":[],"containers":[]}}`,
	"ContainerIsNull":      `{"metadata":{"labels":{"role":"frontend"}},"spec":{"containers":[null]}}`,
	"ContainerNameIsList":  `{"metadata":{"labels":{"role":"frontend"}},"spec":{"containers":[{"name":[]}]}}`,
	"EnvIsObject":          `{"metadata":{"labels":{"role":"frontend"}},"spec":{"containers":[{"name":"a","env":{}}]}}`,
	"VariableIsText":       `{"metadata":{"labels":{"role":"frontend"}},"spec":{"containers":[{"name":"a","env":["A=1"]}]}}`,
	"VariableNameIsNumber": `{"metadata":{"labels":{"role":"frontend"}},"spec":{"containers":[{"name":"a","env":[{"name":1}]}]}}`,
	"SourceIsText":         `{"metadata":{"labels":{"role":"frontend"}},"spec":{"containers":[{"name":"a","envFrom":[{"secretRef":"s"}]}]}}`,
	"VolumeIsNull":         `{"metadata":{"labels":{"role":"frontend"}},"spec":{"volumes":[null]}}`,
	"DeviceIsNumber":       `{"metadata":{"labels":{"role":"frontend"}},"spec":{"containers":[{"name":"a","volumeDevices":[1]}]}}`,
	"BrokenBehind":         `{"metadata":{"labels":{"role":"frontend"}},"spec":{},"status":}`,
}

// TestMalformed: every function returns an error of one line for a document that is not a pod.
func TestMalformed(t *testing.T) {
	set := testSet(t, `{selector: {}, env: [{name: A, value: "1"}], containers: {ephemeralContainers: true}}`)
	const good = `{"metadata":{},"spec":{"ephemeralContainers":[{"name":"a"}]}}`
	for name, pod := range malformed {
		t.Run(name, func(t *testing.T) {
			if result, err := set.Inject([]byte(pod)); !errors.Is(err, raw.ErrSyntax) && !errors.Is(err, errSpec) {
				t.Errorf("Inject() = %+v, %v", result, err)
			}
			if x, err := set.Examine([]byte(pod)); !errors.Is(err, raw.ErrSyntax) && !errors.Is(err, errSpec) {
				t.Errorf("Examine() = %+v, %v", x, err)
			}
			if name == "ContainersAreText" || name == "ContainersTwice" || name == "DeviceIsNumber" {
				return // InjectEphemeral does not read the malformed part of this document.
			}
			if result, err := set.InjectEphemeral([]byte(pod), []byte(good)); err == nil && result.Patch != nil {
				t.Errorf("InjectEphemeral() = %+v", result)
			}
		})
	}
	if _, err := set.InjectEphemeral([]byte(good), []byte(`{`)); !errors.Is(err, raw.ErrSyntax) {
		t.Errorf("InjectEphemeral() of a broken old pod: %v", err)
	}
}
