package lint

import (
	"strings"

	"refract.dev/fleet/offline/render"
	"refract.dev/tree"
)

// checkDigests finds overrides that change the tag of an image and keep its digest. Container runtimes pull the image
// by the digest, so every cluster still runs the former image.
func checkDigests(outcomes []render.Outcome, items map[tree.Author]*item, out *report) {
	runs := map[*item][]run{}
	digests := map[*item]string{}
	var found []*item
	for i := range outcomes {
		o := &outcomes[i]
		for j := range o.Variants {
			for _, c := range retagged(o.Variants[j].Changes) {
				digest, keeps := keepsDigest(c)
				it := items[*c.By]
				if !keeps || it == nil || it.reported {
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

// retagged returns for each image one change that combines all changes of the image. The images are in the order of
// their first changes. The author is that of the last change of the tag.
func retagged(changes []tree.Change) []*tree.Change {
	var images []*tree.Change
	byPath := map[string]*tree.Change{}
	for i := range changes {
		c := &changes[i]
		before, was := c.Before.(string)
		after, is := c.After.(string)
		if !was || !is || lastKey(c.Path) != "image" {
			continue
		}
		image := byPath[c.Path]
		if image == nil {
			image = &tree.Change{Path: c.Path, By: c.By, Before: before}
			byPath[c.Path] = image
			images = append(images, image)
		}
		image.After = after
		if tagOf(before) != tagOf(after) {
			image.By = c.By
		}
	}
	return images
}

// keepsDigest returns the digest of an image if a change replaces its tag and keeps the digest.
func keepsDigest(c *tree.Change) (digest string, ok bool) {
	before, _ := c.Before.(string)
	after, _ := c.After.(string)
	_, digest, had := strings.Cut(before, "@")
	_, now, has := strings.Cut(after, "@")
	return digest, had && has && digest == now && tagOf(before) != tagOf(after)
}

// tagOf returns the tag of an image. A colon before a slash belongs to a port, and one behind an @ to a digest.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	return tag
}
