package web

// Fill takes n samples at once.
func (p *Pages) Fill(n int) {
	for range n {
		p.history.sample(p.history.snapshot())
	}
}
