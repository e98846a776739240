package jsonrpc

// Member returns the value of obj's member key as an exact slice. Where the
// member occurs more than once, the last one counts and n tells how many there
// are: whoever judges by a member's value must refuse n > 1, since another
// reader may take the first. n is 0 if obj has no such member or is no object.
func Member(obj []byte, key string) (value []byte, n int) {
	s := scanner{obj}
	s.members(s.space(0), func(k, v []byte) {
		if string(k) == key {
			value = v
			n++
		}
	})
	return value, n
}

// Lookup returns the value at a path of member names, or nil.
func Lookup(obj []byte, path ...string) []byte {
	for _, key := range path {
		obj, _ = Member(obj, key)
	}
	return obj
}

// TextAt returns the string at a path of member names; ok is false if there is
// none.
func TextAt(obj []byte, path ...string) (text string, ok bool) {
	return Text(Lookup(obj, path...))
}

// Members calls yield for each member of obj in order, with the decoded key
// and the value's exact slice. It reports whether obj is an object.
func Members(obj []byte, yield func(key string, value []byte)) bool {
	s := scanner{obj}
	end := s.members(s.space(0), func(k, v []byte) { yield(string(k), v) })
	return end >= 0 && s.space(end) == len(obj)
}

// Elements returns the elements of arr as exact slices; ok is false if arr is
// no array.
func Elements(arr []byte) (elements [][]byte, ok bool) {
	s := scanner{arr}
	end := s.elements(s.space(0), func(v []byte) { elements = append(elements, v) })
	return elements, end >= 0 && s.space(end) == len(arr)
}

// Edit is a replacement of one exact slice of a text. Old must be a sub-slice
// of the text that is spliced: it says where, not what to search for.
type Edit struct {
	Old []byte
	New []byte
}

// Splice returns text with the edits made and every other byte kept. The edits
// must be in the order of the text and must not overlap. text is not changed.
func Splice(text []byte, edits ...Edit) []byte {
	size := len(text)
	for _, e := range edits {
		size += len(e.New) - len(e.Old)
	}
	out := make([]byte, 0, size)
	done := 0
	for _, e := range edits {
		at := offset(text, e.Old)
		out = append(append(out, text[done:at]...), e.New...)
		done = at + len(e.Old)
	}
	return append(out, text[done:]...)
}

// offset returns where the sub-slice part starts in text. It panics if part is
// none: only a fault of ours can bring a slice of some other text here.
func offset(text, part []byte) int {
	// A sub-slice's capacity reaches to the end of the same array.
	at := cap(text) - cap(part)
	if at < 0 || at+len(part) > len(text) || len(part) > 0 && &text[at] != &part[0] {
		panic("jsonrpc: an edit outside of the text")
	}
	return at
}

// Set returns obj with its member key set to value: replaced where it stands,
// everywhere if it stands more than once, or else added behind the last member.
// What is no object counts as an empty one. obj is not changed.
func Set(obj []byte, key string, value []byte) []byte {
	var room [2]Edit
	edits := room[:0]
	last := 0 // where the last member ends
	s := scanner{obj}
	end := s.members(s.space(0), func(k, v []byte) {
		if string(k) == key {
			edits = append(edits, Edit{v, value})
		}
		last = offset(obj, v) + len(v)
	})
	if len(edits) > 0 {
		return Splice(obj, edits...)
	}
	if end < 0 {
		obj, end, last = []byte("{}"), len("{}"), 0
	}
	out := make([]byte, 0, len(obj)+len(key)+len(value)+len(`,"":`))
	if last == 0 {
		last = end - 1
		out = append(out, obj[:last]...)
	} else {
		out = append(append(out, obj[:last]...), ',')
	}
	out = append(AppendQuote(out, key), ':')
	return append(append(out, value...), obj[last:]...)
}

// Delete returns obj without its members named key. Of each goes what stands
// between the two commas, or between a brace and a comma, and one of the
// commas. obj is not changed; it is returned if it has no such member.
func Delete(obj []byte, key string) []byte {
	if _, n := Member(obj, key); n == 0 {
		return obj
	}
	s := scanner{obj}
	from := s.space(0) + 1 // behind the brace or comma before the member
	out := append(make([]byte, 0, len(obj)), obj[:from]...)
	none := len(out)
	s.members(from-1, func(k, v []byte) {
		to := s.space(offset(obj, v) + len(v)) // the brace or comma behind it
		if string(k) != key {
			if len(out) > none {
				out = append(out, ',')
			}
			out = append(out, obj[from:to]...)
		}
		from = to + 1
	})
	return append(out, obj[from-1:]...)
}
