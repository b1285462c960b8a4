package lint

import (
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/offline/render"
	"refract.dev/tree"
)

// checkDigests looks for overrides that change the tag of an image and keep its digest. Container runtimes
// pull the image of the digest, so every cluster still runs the former image.
func checkDigests(outcomes []render.Outcome, items map[tree.Author]*item, out *report) {
	runs := map[*item][]run{}
	digests := map[*item]string{}
	var found []*item
	for i := range outcomes {
		o := &outcomes[i]
		for j := range o.Variants {
			for k := range o.Variants[j].Changes {
				c := &o.Variants[j].Changes[k]
				digest, keeps := keepsDigest(c)
				it := items[*c.By]
				if !keeps || it == nil || it.reported {
					continue
				}
				if _, ok := it.spec.(*corev1alpha1.ImageOverrider); !ok {
					continue
				}
				if runs[it] == nil {
					found = append(found, it)
					digests[it] = digest
				}
				runs[it] = append(runs[it], run{outcome: o, variant: &o.Variants[j]})
			}
		}
	}
	for _, it := range found {
		out.add(it.rule.policy.finding(TagBesideDigest, it.field,
			"changes the tag of an image and keeps its digest %s, which wins: the clusters run the former image", digests[it]).
			hint("overwrite the Digest as well, or delete it").on(affected(runs[it])))
	}
}

// keepsDigest returns the digest of an image whose tag a change replaces beside it.
func keepsDigest(c *tree.Change) (digest string, ok bool) {
	before, _ := c.Before.(string)
	after, _ := c.After.(string)
	was, digest, had := strings.Cut(before, "@")
	is, now, has := strings.Cut(after, "@")
	return digest, had && has && digest == now && tagOf(was) != tagOf(is)
}

// tagOf returns the tag of an image without digest; a colon before a slash belongs to a port.
func tagOf(image string) string {
	_, tag, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	return tag
}
